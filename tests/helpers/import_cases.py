"""Small files of each format, and the call that imports them."""

from pathlib import Path

from planner.imports.command_options import GridOptions
from planner.imports.grid_drafts import Imported
from planner.imports.read_grid import import_grid

# Four buses in two areas on a base of 50 MVA: two equal circuits, one unequal beside them, a transformer, and a branch
# out of service.
CASE = """\
function mpc = case4
%CASE4 with a comment, and mpc.bus = [ in it
mpc.version = '2';
mpc.baseMVA = 50;   % base
%{
mpc.bus = [ 9 9 9 ];
%}
mpc.bus = [  % bus_i type Pd Qd Gs Bs area Vm Va baseKV zone Vmax Vmin
\t1\t3\t0\t0\t0\t0\t1\t1\t0\t230\t1\t1.1\t0.9;
\t2, 1, 100, 0, 0, 0, 1, 1, 0, 230, 1, 1.1, 0.9
\t3\t1\t50\t0\t0\t0\t2\t1\t0 ...  the row goes on
\t115\t1\t1.1\t0.9; 4 1 7 0 0 0 2 1 0 115 1 1.1 0.9
];
mpc.gen = [
\t1\t72\t0\t300\t-300\t1\t100\t1\t250\t10;
\t1\t72\t0\t300\t-300\t1\t100\t1\t50\t10;
\t3\t0\t0\t300\t-300\t1\t100\t0\t80\t10;
];
mpc.branch = [
\t1\t2\t0.01\t0.1\t0\t250\t250\t250\t0\t0\t1\t-360\t360;
\t2\t1\t0.01\t0.1\t0\t250\t250\t250\t0\t0\t1\t-360\t360;
\t1\t2\t0.01\t0.2\t0\t0\t0\t0\t0\t0\t1\t-360\t360;
\t2\t3\t0.01\t0.1\t0\t100\t100\t100\t0.98\t0\t1\t-360\t360;
\t3\t4\t0.01\t-0.1\t0\t100\t100\t100\t0\t5\t1\t-360\t360;
\t1\t4\t0.01\t0.1\t0\t100\t100\t100\t0\t0\t0\t-360\t360;
];
mpc.gencost = [
\t2\t1500\t0\t3\t0.11\t5\t150;
];
mpc.bus_name = {
\t'a % b';
};
"""
POSITIONS = "bus,lat,lon\n1,40,-75\n2,40.5,-75\n3,41,-75\n4,41,-76\n"

BUS = """\
Bus ID,Bus Name,BaseKV,MW Load,Area,lat,lng
101,Abel,138,100,1,33.4,-113.8
102,Adams,138,50,1,33.3,-113.7
201,Bates,230,20,2,34.0,-114.0
"""
BRANCH = """\
UID,From Bus,To Bus,X,Cont Rating,Tr Ratio
A1,101,102,0.014,175,0
A2,102,101,0.014,175,0
B1,101,201,0.084,400,1.05
"""
GEN = """\
GEN UID,Bus ID,PMax MW
101_A,101,20
101_B,101,300
201_A,201,55
"""

PLANTS = """\
eia_plant_id,name,state,lat,lon,capacity_mw,ba,nerc,kv
1,Big Nuclear,PA,40.00,-76.00,2000,PJM,RFC,500
2,"Near, Gas",PA,40.10,-76.00,900,PJM,RFC,230
3,Far Coal,PA,41.00,-76.00,1000,PJM,RFC,500
4,Desert Sun,AZ,33.40,-112.80,400,SRP,WECC,500
5,Next Door,PA,40.05,-76.00,30,SRP,WECC,69
6,Nobody's,PA,40.00,-76.10,50,,RFC,69
"""
PEAKS = "ba,peak_mw_clean_2023_24,peak_mw_raw_2023_24\nPJM,3000,9999\nSRP,100,9999\nAEC,0,\n"

ZONES = """\
zone,lat,lon,state,interconnect,planning_group
p1,40.0,-76.0,PA,eastern,PJM_East
p2,41.0,-76.0,PA,eastern,PJM_East
p3,33.4,-112.0,AZ,western,WestConnect
"""
INTERFACES = """\
from,to,type,mw_forward,mw_reverse
p1,p2,AC,500,400
p2,p1,AC,0,30
p2,p3,B2B,200,200
"""

TEXTS = {
    "case4.m": CASE, "positions.csv": POSITIONS, "bus.csv": BUS, "branch.csv": BRANCH, "gen.csv": GEN,
    "plants.csv": PLANTS, "peaks.csv": PEAKS, "zones.csv": ZONES, "interfaces.csv": INTERFACES,
}  # fmt: skip


def put(folder: Path, names: str, old: str = "", new: str = "") -> list[Path]:
    """Write the named files, `old` replaced by `new` in those that have it once; one must, where `old` is given."""
    paths = []
    edited = 0
    for name in names.split():
        text = TEXTS[name]
        if old and text.count(old) == 1:
            text, edited = text.replace(old, new), edited + 1
        (folder / name).write_text(text, encoding="utf-8")
        paths.append(folder / name)
    assert edited == bool(old), f"{old!r} must stand once in one of {names}"
    return paths


def imported(folder: Path, names: str, *, kind: str = "auto", **options: object) -> Imported:
    return import_grid(put(folder, names), kind, GridOptions(**options))  # type: ignore[arg-type]
