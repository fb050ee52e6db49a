"""One small real training per framework, on images that come with scikit-learn."""
