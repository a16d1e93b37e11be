"""The course as data: manifests, rules, planted bugs, designs."""
