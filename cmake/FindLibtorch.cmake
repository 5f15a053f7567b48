# Finds libtorch (CPU or CUDA build, 2.6 or newer) without find_package(Torch), which stops when a CUDA
# wheel meets a machine without the CUDA toolkit. Looked for in this order, the first one wins:
#   1. -DLOOM_TORCH_DIR=DIR   a folder with include/ and lib/ (an unpacked libtorch, or a wheel's torch/)
#   2. <repository>/.venv     a pip wheel, found by its path; Python is never started
#   3. /usr                   Debian's libtorch-dev
# .venv-test, where the Python of the tests lives, is never looked at.
#
# Makes the target Libtorch::Libtorch and sets Libtorch_FOUND, Libtorch_VERSION, Libtorch_BLAS,
# Libtorch_SOURCE (sentence for people), Libtorch_LIBRARY_DIRS. Headers come by -idirafter: the wheel ships
# its own fmt, pybind11 and google folders, which would otherwise hide the system's.
set(LOOM_TORCH_DIR "" CACHE PATH "Folder of a libtorch with include/ and lib/; empty: look in .venv, then in /usr")
set(_torch_minimum 2.6)

set(_torch_roots "")
if(LOOM_TORCH_DIR)
  list(APPEND _torch_roots ${LOOM_TORCH_DIR})
else()
  file(GLOB _torch_wheels LIST_DIRECTORIES true
       ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch)
  list(APPEND _torch_roots ${_torch_wheels} /usr)
endif()

set(_torch_root "")
set(_torch_lib "")
set(_torch_tried "")
foreach(_root IN LISTS _torch_roots)
  foreach(_lib ${_root}/lib ${_root}/lib/${CMAKE_CXX_LIBRARY_ARCHITECTURE})
    if(NOT _torch_root AND EXISTS ${_root}/include/ATen/ATen.h AND EXISTS ${_lib}/libtorch_cpu.so)
      set(_torch_root ${_root})
      set(_torch_lib ${_lib})
    endif()
  endforeach()
  list(APPEND _torch_tried ${_root})
endforeach()

string(JOIN "\n" _torch_help
  "Two ways to get one:"
  "  python3 -m venv .venv && .venv/bin/pip install torch==2.13.0    (any system; found in .venv by itself)"
  "  apt-get install libtorch-dev libopenblas0-openmp                (Debian 13 and newer)"
  "./run build does the right one. Or point to a libtorch with -DLOOM_TORCH_DIR=DIR,"
  "or build only what needs none with -DLOOM_TORCH=OFF.")

# The version: 2.8 moved the numbers to torch/headeronly/version.h; older and newer ones are read alike.
set(Libtorch_VERSION "")
if(_torch_root)
  foreach(_header torch/headeronly/version.h torch/version.h torch/csrc/api/include/torch/version.h)
    if(NOT Libtorch_VERSION AND EXISTS ${_torch_root}/include/${_header})
      file(STRINGS ${_torch_root}/include/${_header} _lines REGEX "#define TORCH_VERSION_(MAJOR|MINOR|PATCH) [0-9]+")
      if(_lines MATCHES "MAJOR ([0-9]+).*MINOR ([0-9]+).*PATCH ([0-9]+)")
        set(Libtorch_VERSION ${CMAKE_MATCH_1}.${CMAKE_MATCH_2}.${CMAKE_MATCH_3})
      endif()
    endif()
  endforeach()
endif()

set(_torch_problem "")
if(NOT _torch_root)
  string(JOIN ", " _torch_tried ${_torch_tried})
  set(_torch_problem "no libtorch found in: ${_torch_tried} (include/ATen/ATen.h and lib/libtorch_cpu.so).")
elseif(NOT Libtorch_VERSION)
  set(_torch_problem "the libtorch in ${_torch_root} does not say its version in torch/version.h.")
elseif(Libtorch_VERSION VERSION_LESS _torch_minimum)
  set(_torch_problem "the libtorch in ${_torch_root} is ${Libtorch_VERSION}; Loom needs ${_torch_minimum} or newer (scaled_dot_product_attention and the C++20 headers).")
endif()
# Wheels up to 2.6 were built with the old C++ ABI and cannot be linked with the system's C++ libraries.
set(_torch_config ${_torch_root}/share/cmake/Torch/TorchConfig.cmake)
if(NOT _torch_problem AND EXISTS ${_torch_config})
  file(STRINGS ${_torch_config} _torch_old_abi REGEX "_GLIBCXX_USE_CXX11_ABI=0")
  if(_torch_old_abi)
    set(_torch_problem "the libtorch ${Libtorch_VERSION} in ${_torch_root} was built with the old C++ ABI; wheels from 2.7 on have the new one.")
  endif()
endif()
if(_torch_problem)
  set(Libtorch_FOUND FALSE)
  if(Libtorch_FIND_REQUIRED)
    message(FATAL_ERROR "libtorch: ${_torch_problem}\n${_torch_help}")
  endif()
  return()
endif()

if(LOOM_TORCH_DIR)
  set(Libtorch_SOURCE "LOOM_TORCH_DIR, ${_torch_root}")
elseif(_torch_root STREQUAL "/usr")
  set(Libtorch_SOURCE "Debian's package, ${_torch_lib}")
else()
  set(Libtorch_SOURCE "wheel, ${_torch_root}")
endif()

# The BLAS: Debian's build links libblas.so.3, which the alternatives system points to one of several; the
# wheel carries its own, linked in (MKL on x86-64), or a shared one beside its libraries.
set(Libtorch_BLAS "unknown")
file(GLOB _torch_blas_near ${_torch_lib}/libopenblas*.so* ${_torch_lib}/libmkl_*.so*
     ${_torch_root}/../torch.libs/libopenblas*.so*)
set(_torch_blas_system /usr/lib/${CMAKE_CXX_LIBRARY_ARCHITECTURE}/libblas.so.3)
if(_torch_root STREQUAL "/usr" AND EXISTS ${_torch_blas_system})
  file(REAL_PATH ${_torch_blas_system} Libtorch_BLAS)
  if(NOT Libtorch_BLAS MATCHES "openblas|mkl|blis")
    message(WARNING "libtorch uses the reference BLAS (${Libtorch_BLAS}), which is ten times slower. "
                    "hint: apt-get install libopenblas0-openmp")
  endif()
elseif(_torch_blas_near)
  list(GET _torch_blas_near 0 Libtorch_BLAS)
  get_filename_component(Libtorch_BLAS ${Libtorch_BLAS} NAME)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(Libtorch_BLAS "MKL inside libtorch_cpu.so")
endif()

# Folders the program must find at run time: libtorch's own (CMake puts it into the build tree's RPATH by
# itself) and those of the CUDA libraries that a CUDA wheel brings along.
file(GLOB _torch_nvidia LIST_DIRECTORIES true ${_torch_root}/../nvidia/*/lib)
set(Libtorch_LIBRARY_DIRS "")
if(NOT _torch_root STREQUAL "/usr")
  set(Libtorch_LIBRARY_DIRS ${_torch_lib} ${_torch_nvidia})
endif()

set(_torch_names c10 torch_cpu torch)
set(_torch_accelerator "CPU")
if(EXISTS ${_torch_lib}/libtorch_cuda.so)
  list(APPEND _torch_names c10_cuda torch_cuda)
  set(_torch_accelerator "CPU and CUDA")
endif()
if(NOT TARGET Libtorch::Libtorch)
  foreach(_name IN LISTS _torch_names)
    add_library(Libtorch::${_name} SHARED IMPORTED)
    set_target_properties(Libtorch::${_name} PROPERTIES IMPORTED_LOCATION ${_torch_lib}/lib${_name}.so)
  endforeach()
  add_library(Libtorch::Libtorch INTERFACE IMPORTED)
  # SHELL: keeps each pair together when options are de-duplicated.
  foreach(_dir ${_torch_root}/include ${_torch_root}/include/torch/csrc/api/include)
    if(NOT _dir STREQUAL "/usr/include")
      target_compile_options(Libtorch::Libtorch INTERFACE "SHELL:-idirafter ${_dir}")
    endif()
  endforeach()
  foreach(_dir IN LISTS _torch_nvidia)
    target_link_options(Libtorch::Libtorch INTERFACE "LINKER:-rpath,${_dir}")
  endforeach()
  target_link_libraries(Libtorch::Libtorch INTERFACE Libtorch::torch Libtorch::torch_cpu Libtorch::c10)
  if(TARGET Libtorch::torch_cuda)
    # Nothing in our code names a CUDA symbol: without this the linker drops them and CUDA is "not available".
    target_link_options(Libtorch::Libtorch INTERFACE
      "LINKER:--push-state,--no-as-needed,${_torch_lib}/libtorch_cuda.so,${_torch_lib}/libc10_cuda.so,--pop-state")
    # The CUDA libraries' own dependencies (cudart, cublas, ...) are resolved at run time, by the RPATH.
    target_link_options(Libtorch::Libtorch INTERFACE "LINKER:--allow-shlib-undefined")
  endif()
endif()

set(Libtorch_FOUND TRUE)
if(NOT Libtorch_FIND_QUIETLY)
  message(STATUS "libtorch ${Libtorch_VERSION}, ${_torch_accelerator} (${Libtorch_SOURCE}), BLAS: ${Libtorch_BLAS}")
endif()
