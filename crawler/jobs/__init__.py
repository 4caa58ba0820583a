"""Jobs as the instances that own them see them: when their runs are due, what they fetch, when they end."""
