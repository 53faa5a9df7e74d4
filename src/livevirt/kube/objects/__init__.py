"""What the objects are: kinds, schemas, quantities, selectors; one registry feeds everything."""
