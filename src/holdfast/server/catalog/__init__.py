"""The catalog: what is registered, who sees it, and how it is listed."""
