"""The component's exports: the only file that imports the host's interfaces."""

from componentize_py_types import Err
from wit_world.imports import clock, cluster, log, types

from pilothouse import exports
from website import PLUGIN

Manifest, Reconciler = exports(PLUGIN, clock=clock, cluster=cluster, log=log, types=types, Err=Err)
