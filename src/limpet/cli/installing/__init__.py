"""`limpet install`: write a server into the configuration file of a client program."""
