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
if(LOOM_SANITIZE)  # compiles in two thirds of the time
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2")  # -O3 gains nothing measurable here and costs false warnings

find_program(LOOM_CCACHE ccache)
if(LOOM_CCACHE)
  # A clone in another folder finds what this one compiled; pch_defines and time_macros let ccache see through the precompiled header of the torch targets.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      ${LOOM_CCACHE})
endif()

add_library(loom_flags INTERFACE)
target_include_directories(loom_flags INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR})
target_compile_options(loom_flags INTERFACE -Wall -Wextra -Wconversion -Wshadow -ffp-contract=off)
# clang reports loops that a sanitizer keeps it from vectorising, which is no fault of the code.
target_compile_options(loom_flags INTERFACE $<$<CXX_COMPILER_ID:Clang>:-Wno-pass-failed>)
if(LOOM_WERROR)
  target_compile_options(loom_flags INTERFACE -Werror)
endif()
if(LOOM_SANITIZE)
  target_compile_options(loom_flags INTERFACE -fsanitize=${LOOM_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(loom_flags INTERFACE -fsanitize=${LOOM_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # instrumented initializer lists look uninitialized to GCC 12
    target_compile_options(loom_flags INTERFACE -Wno-maybe-uninitialized)
    if(LOOM_SANITIZE MATCHES thread)  # Boost.Asio's fences, which ThreadSanitizer does not model
      target_compile_options(loom_flags INTERFACE -Wno-tsan)
    endif()
  endif()
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

# loom_test(NAME SOURCES... DEPS... [LABELS ...] [TIMEOUT s] [SHARDS n] [TORCH]): one GoogleTest program; with
# SHARDS its cases run as n tests side by side.
function(loom_test name)
  cmake_parse_arguments(ARG "TORCH" "TIMEOUT;SHARDS" "SOURCES;DEPS;PRIVATE_LIBS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(${name}_test ${ARG_SOURCES})
  list(TRANSFORM ARG_DEPS PREPEND loom_)
  target_link_libraries(${name}_test PRIVATE loom_flags ${ARG_DEPS} ${ARG_PRIVATE_LIBS} GTest::gtest GTest::gtest_main)
  if(ARG_TORCH)
    loom_use_torch(${name}_test)
  endif()
  if(NOT ARG_SHARDS)
    add_test(NAME ${name} COMMAND ${name}_test)
    set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
    return()
  endif()
  math(EXPR last "${ARG_SHARDS} - 1")
  foreach(shard RANGE ${last})
    add_test(NAME ${name}_${shard} COMMAND ${name}_test)
    set_tests_properties(${name}_${shard} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}"
      ENVIRONMENT "GTEST_TOTAL_SHARDS=${ARG_SHARDS};GTEST_SHARD_INDEX=${shard}")
  endforeach()
endfunction()

# loom_python_test(NAME SCRIPT [ARGS ...] [TIMEOUT s]): a test written in Python, run by .venv-test. Without
# that folder (or when the script exits 77) ctest reports it as skipped, never as passed.
function(loom_python_test name script)
  cmake_parse_arguments(ARG "" "TIMEOUT" "ARGS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  add_test(NAME ${name} COMMAND ${CMAKE_SOURCE_DIR}/tools/python_test ${CMAKE_CURRENT_SOURCE_DIR}/${script} ${ARG_ARGS})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "python" SKIP_RETURN_CODE 77
    ENVIRONMENT "HF_HUB_OFFLINE=1")
endfunction()

# loom_fuzz(NAME DEPS... [MUTATIONS n]): one fuzz target, NAME_fuzz.cc, the program fuzz_NAME of the target
# `fuzz_all`. With -DLOOM_FUZZ=ON (preset fuzz, clang 19) libFuzzer drives it. Other builds link the same source
# with fuzz/driver.cc, which replays seeds and fuzz/corpus/NAME and mutates them n times, and run that as a test.
add_custom_target(fuzz_all)
function(loom_fuzz name)
  cmake_parse_arguments(ARG "" "MUTATIONS" "DEPS" ${ARGN})
  if(NOT ARG_MUTATIONS)
    set(ARG_MUTATIONS 20000)
  endif()
  list(TRANSFORM ARG_DEPS PREPEND loom_)
  add_executable(fuzz_${name} ${name}_fuzz.cc)
  target_link_libraries(fuzz_${name} PRIVATE loom_flags loom_fuzz_base ${ARG_DEPS})
  set_target_properties(fuzz_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
  add_dependencies(fuzz_all fuzz_${name})
  if(LOOM_FUZZ)
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
  else()
    target_link_libraries(fuzz_${name} PRIVATE loom_fuzz_driver)
    add_test(NAME fuzz_${name}
      COMMAND fuzz_${name} --mutations ${ARG_MUTATIONS} ${CMAKE_SOURCE_DIR}/fuzz/corpus/${name})
    set_tests_properties(fuzz_${name} PROPERTIES TIMEOUT 300)
  endif()
endfunction()
