//! Kubernetes API objects into the model: everything is parsed here, once.
