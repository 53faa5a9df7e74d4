"""OpenAPI documents and CustomResourceDefinitions, made from the schema tables."""
