"""Every MUST and SHOULD of the specification, by its hash, with the test that shows it or the reason why there is none."""
