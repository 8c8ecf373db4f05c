"""The simulated world: the real driver, engine, KCM and wrapper logic on a virtual clock, over simulated clusters."""
