import ctypes
import json
import subprocess
import sys

from cowmlx.host.generated import declarations as cow

path = subprocess.check_output([sys.executable, "-m", "cowmlx", "library"], text=True).strip()
lib = ctypes.CDLL(path)
for name, (result, parameters) in cow.FUNCTIONS.items():
    function = getattr(lib, name)
    function.restype, function.argtypes = result, [kind for _, kind in parameters]


def check(status):
    if status < 0:
        raise RuntimeError(lib.cow_mlx_error_message().decode())


model, context = cow.cow_mlx_model(), cow.cow_mlx_context()
check(lib.cow_mlx_runtime_start(None))
check(lib.cow_mlx_model_load(b"models/calf", None, ctypes.byref(model)))
check(lib.cow_mlx_context_create(model, None, ctypes.byref(context)))
_ = json
# BLOCK
check(lib.cow_mlx_runtime_stop())
