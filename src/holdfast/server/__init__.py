"""What server authors write against: functions, content, templates, pages, and the server itself."""
