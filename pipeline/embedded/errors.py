"""What can go wrong while a part starts. Every message says what to do next."""


class EmbeddedError(Exception):
    """A part of the embedded stack cannot run; the text says why and what to do."""


class MissingProgramError(EmbeddedError):
    """A program the part needs (java, mvn, the chdb wheel) is not installed."""


class JarsError(EmbeddedError):
    """The Kafka jars are neither on disk nor could they be fetched."""


class PortTakenError(EmbeddedError):
    """The port asked for already has a listener."""


class PartFailedError(EmbeddedError):
    """The part's process ended or did not answer in time; the text carries the end of its log."""


class FolderHeldError(EmbeddedError):
    """Another living process holds the data folder."""
