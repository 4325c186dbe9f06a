"""Write: whole answers and refusals, and the response on which they or a stream of events leave."""
