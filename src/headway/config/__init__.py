"""Settings: frozen, typed, documented in one place, from file < environment < flags."""

from headway.config.declare import Section, Setting, settings_of
from headway.config.dump import HIDDEN, to_toml, value_of
from headway.config.load import (
    CACHE_VARIABLE,
    CONFIG_VARIABLE,
    DEFAULT,
    Loaded,
    Origin,
    load_settings,
    nearest,
)
from headway.config.settings import (
    SECTIONS,
    ContradictionError,
    JournalSettings,
    KvSettings,
    ModelSettings,
    SchedulerSettings,
    ServerSettings,
    Settings,
    SimulationSettings,
    all_settings,
)

__all__ = [
    "CACHE_VARIABLE",
    "CONFIG_VARIABLE",
    "DEFAULT",
    "HIDDEN",
    "SECTIONS",
    "ContradictionError",
    "JournalSettings",
    "KvSettings",
    "Loaded",
    "ModelSettings",
    "Origin",
    "SchedulerSettings",
    "Section",
    "ServerSettings",
    "Setting",
    "Settings",
    "SimulationSettings",
    "all_settings",
    "load_settings",
    "nearest",
    "settings_of",
    "to_toml",
    "value_of",
]
