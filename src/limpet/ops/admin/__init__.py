"""The admin surface: a JSON API, figures for Prometheus and the dashboard, on its own address."""
