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
