"""The chains of the catalogue as stories. Importing a module registers its stories."""
