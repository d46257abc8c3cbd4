"""What can go wrong with the store. Each text says what to do next."""


class StoreError(Exception):
    """Base of everything the store raises on purpose."""


class StoreSettingsError(StoreError):
    """The address or a credential of ClickHouse cannot be used as written."""


class StoreUnreachableError(StoreError):
    """ClickHouse does not answer."""


class StoreRefusedError(StoreError):
    """ClickHouse answered with an error; `code` is its error code (0: not known)."""

    def __init__(self, message: str, *, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class MigrationError(StoreError):
    """The migration files and the database do not fit each other."""


class MigrationChangedError(MigrationError):
    """A file that is already applied has other content than when it was applied."""


class MigrationLockedError(MigrationError):
    """Somebody else is migrating and does not come to an end."""


class QueryFileError(StoreError):
    """A named query does not exist, its header cannot be read, or a parameter does not fit."""
