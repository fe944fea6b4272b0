"""The subcommands of `nodeheal-agent`, one module each; `table` lists them."""
