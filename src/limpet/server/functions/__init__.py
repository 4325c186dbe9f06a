"""A Python function as a component: its signature and schema, its dependencies, its results and its errors."""
