# Finds the torch of a Python. It is not imported: in an isolated build of pip it cannot be, but it still lies
# where it is installed.
include_guard(GLOBAL)

set(_kronsparse_find_torch
    [=[
import importlib.util, pathlib, re, sysconfig
spec = importlib.util.find_spec("torch")
places = [pathlib.Path(spec.origin).parent] if spec and spec.origin else []
places += [pathlib.Path(sysconfig.get_path(name), "torch") for name in ("platlib", "purelib")]
for place in places:
    if (place / "version.py").exists():
        text = (place / "version.py").read_text()
        version = re.search(r"__version__ = '([^']*)'", text)
        cuda = re.search(r"^cuda\b[^=]*= '([^']*)'", text, re.MULTILINE)
        print(place, version[1] if version else "", cuda[1] if cuda else "none", sep=";", end="")
        break
]=])

# kronsparse_find_torch(<python> <variable>): its directory, version and version of CUDA ("none"), or nothing.
function(kronsparse_find_torch python variable)
  execute_process(
    COMMAND "${python}" -c "${_kronsparse_find_torch}"
    OUTPUT_VARIABLE torch ERROR_QUIET)
  set(${variable} "${torch}" PARENT_SCOPE)
endfunction()

# The CUDA backend takes minutes to compile, and torch is how most users of the Python package would reach it: beside a
# torch without CUDA `pip install` leaves it out, unless KRONSPARSE_CUDA is ON.
macro(kronsparse_cuda_of_torch)
  if(SKBUILD
     AND Python_EXECUTABLE
     AND (NOT DEFINED KRONSPARSE_CUDA OR KRONSPARSE_CUDA STREQUAL "AUTO"))
    kronsparse_find_torch("${Python_EXECUTABLE}" _torch)
    if(_torch)
      list(GET _torch 1 _torch_version)
      list(GET _torch 2 _torch_cuda)
      if(_torch_cuda STREQUAL "none")
        set(KRONSPARSE_CUDA OFF)
        set(KRONSPARSE_CUDA_OFF_BECAUSE
            "left out, because torch ${_torch_version} has no CUDA: KRONSPARSE_CUDA=ON builds it nevertheless")
      endif()
    endif()
  endif()
endmacro()
