"""Resources that need no function of yours: a text, a file, a directory.

from limpet.resources import Directory, File, Text

server.add_resource("note://rules", Text("Be brief."))
server.add_resource("docs://readme", File("NOTES.txt"))
docs = Directory("docs", pattern="*.txt")
server.add_resource("docs://list", docs)
server.add_resource("docs://files/{+path}", docs.read)
"""

from limpet.server.authoring.stock_resources import Directory, File, Text

__all__ = ["Directory", "File", "Text"]
