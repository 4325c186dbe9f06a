"""The drill: a fault is caused on purpose, and the dashboard and the log must name its cause within two minutes."""
