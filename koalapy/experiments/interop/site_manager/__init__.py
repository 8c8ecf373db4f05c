"""The site manager of the experiments: delegated matchmaking as the paper describes it (SC'07, section 4)."""
