# Build rules shared by every layer: loom_library(), loom_test(), and the project-wide flags.
# -ffp-contract=off: agreed arithmetic must not fuse a multiply with an add (rule R28).
include(CTest)
find_package(Threads REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(fmt REQUIRED)
find_package(GTest REQUIRED)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")

find_program(LOOM_CCACHE ccache)
if(LOOM_CCACHE)
  # pch_defines and time_macros let ccache see through the precompiled header of the torch targets.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      ${LOOM_CCACHE})
endif()

add_library(loom_flags INTERFACE)
target_include_directories(loom_flags INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR})
target_compile_options(loom_flags INTERFACE -Wall -Wextra -Wconversion -Wshadow -ffp-contract=off)
if(LOOM_WERROR)
  target_compile_options(loom_flags INTERFACE -Werror)
endif()
if(LOOM_SANITIZE)
  target_compile_options(loom_flags INTERFACE -fsanitize=${LOOM_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(loom_flags INTERFACE -fsanitize=${LOOM_SANITIZE})
endif()

# Torch sources need 0.7 to 1.3 GB each to compile: as many at once as memory and processors allow, one link.
cmake_host_system_information(RESULT _loom_memory_mb QUERY TOTAL_PHYSICAL_MEMORY)
cmake_host_system_information(RESULT _loom_torch_jobs QUERY NUMBER_OF_LOGICAL_CORES)
math(EXPR _loom_jobs_by_memory "${_loom_memory_mb} / 1400")
if(_loom_jobs_by_memory LESS _loom_torch_jobs)
  set(_loom_torch_jobs ${_loom_jobs_by_memory})
endif()
if(_loom_torch_jobs LESS 1)
  set(_loom_torch_jobs 1)
endif()
set_property(GLOBAL APPEND PROPERTY JOB_POOLS loom_torch_compile=${_loom_torch_jobs} loom_torch_link=1)

# loom_use_torch(TARGET): lets the .cc files of TARGET include libtorch. The headers stay private to it;
# what links TARGET gets the libraries only. All such targets share one precompiled header (22 s once, then
# 2 s a file instead of 8-19 s), which demands equal flags: -fPIC also for programs.
function(loom_use_torch target)
  if(NOT TARGET Libtorch::Libtorch)
    message(FATAL_ERROR "loom_use_torch(${target}): libtorch was not looked for; it is with -DLOOM_TORCH=ON")
  endif()
  if(NOT TARGET loom_torch_pch)
    add_library(loom_torch_pch STATIC ${CMAKE_SOURCE_DIR}/cmake/torch_pch.cc)
    target_precompile_headers(loom_torch_pch PRIVATE <ATen/ATen.h> <torch/csrc/autograd/custom_function.h>)
    _loom_torch_settings(loom_torch_pch)
    target_link_libraries(loom_torch_pch PRIVATE loom_flags)
  endif()
  _loom_torch_settings(${target})
  target_precompile_headers(${target} REUSE_FROM loom_torch_pch)
endfunction()

function(_loom_torch_settings target)
  target_link_libraries(${target} PRIVATE Libtorch::Libtorch)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF
    JOB_POOL_COMPILE loom_torch_compile JOB_POOL_LINK loom_torch_link)
  target_compile_options(${target} PRIVATE -fPIC)
endfunction()

# loom_library(NAME SOURCES... DEPS... [PRIVATE_LIBS ...] [TORCH]): the target loom_NAME.
function(loom_library name)
  cmake_parse_arguments(ARG "TORCH" "" "SOURCES;DEPS;PRIVATE_LIBS" ${ARGN})
  add_library(loom_${name} STATIC ${ARG_SOURCES})
  list(TRANSFORM ARG_DEPS PREPEND loom_)
  target_link_libraries(loom_${name} PUBLIC loom_flags ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_LIBS})
  if(ARG_TORCH)
    loom_use_torch(loom_${name})
  endif()
endfunction()

# loom_test(NAME SOURCES... DEPS... [LABELS ...] [TIMEOUT s] [TORCH]): one GoogleTest program.
function(loom_test name)
  cmake_parse_arguments(ARG "TORCH" "TIMEOUT" "SOURCES;DEPS;PRIVATE_LIBS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(${name}_test ${ARG_SOURCES})
  list(TRANSFORM ARG_DEPS PREPEND loom_)
  target_link_libraries(${name}_test PRIVATE loom_flags ${ARG_DEPS} ${ARG_PRIVATE_LIBS} GTest::gtest GTest::gtest_main)
  if(ARG_TORCH)
    loom_use_torch(${name}_test)
  endif()
  add_test(NAME ${name} COMMAND ${name}_test)
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
endfunction()
