"""The REST wire: TF Serving's HTTP paths and JSON over an InferenceService."""
