"""Settings: frozen, typed, documented in one place, from file < environment < flags."""

from headway.config.contradiction import ContradictionError
from headway.config.declare import Section, Setting, settings_of
from headway.config.dump import HIDDEN, hidden_keys, to_toml, value_of
from headway.config.file import Origin, nearest
from headway.config.load import (
    CACHE_VARIABLE,
    CONFIG_VARIABLE,
    DEFAULT,
    Loaded,
    load_settings,
)
from headway.config.settings import (
    SECTIONS,
    JournalSettings,
    KvSettings,
    ModelSettings,
    ProfileSettings,
    SchedulerSettings,
    ServerSettings,
    Settings,
    SimulationSettings,
    all_settings,
)
from headway.config.traffic import TABLES, ClassSettings, TenantSettings, table_settings

__all__ = [
    "CACHE_VARIABLE",
    "CONFIG_VARIABLE",
    "DEFAULT",
    "HIDDEN",
    "SECTIONS",
    "TABLES",
    "ClassSettings",
    "ContradictionError",
    "JournalSettings",
    "KvSettings",
    "Loaded",
    "ModelSettings",
    "Origin",
    "ProfileSettings",
    "SchedulerSettings",
    "Section",
    "ServerSettings",
    "Setting",
    "Settings",
    "SimulationSettings",
    "TenantSettings",
    "all_settings",
    "hidden_keys",
    "load_settings",
    "nearest",
    "settings_of",
    "table_settings",
    "to_toml",
    "value_of",
]
