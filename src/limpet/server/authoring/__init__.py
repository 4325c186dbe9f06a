"""The parts that an author writes: tools, resources, prompts, completions, middleware, routes and listeners."""
