"""The built-in policies. They use only what `rtsched` makes public, as any other plug-in would."""
