"""Where in a training its energy went: profilers that a meter or a callback is given."""
