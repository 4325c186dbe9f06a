"""The servers of `limpet serve`, from the command line and from a file: one frozen `Plan`.

plan         the plan, and the paths of servers
sources      the only place that decides which value counts: command line, environment, file
toml_file    `limpet.toml`: our own file, read strictly
mcp_json     `mcp.json`, as Claude Desktop, Cursor and VS Code write it
file_values  values of a file into structures; errors that name the file, the table and the key
literals     secrets that are written out
variables    `${NAME}` in texts
"""
