"""A Python function as a component: its signature and schema, its dependencies, what it returns and what it raises."""
