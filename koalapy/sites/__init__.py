"""Site managers: delegated matchmaking between sites that lend each other processors (SC'07, section 4)."""
