// Runs simulated swarms from the command line:
//   loom_sim --seed 7 --scenario leader-killed-in-reduce     one run, with its trace
//   loom_sim --seeds 100 [--scenario NAME]                   seeds 1..100 of every scenario, or of
//   one
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "sim/scenario.h"

namespace {

int Usage() {
  fmt::print(
      stderr,
      "usage: loom_sim --seed N --scenario NAME | --seeds N [--first N] [--scenario NAME]\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace loom::sim;
  std::map<std::string, std::string> args;
  for (int i = 1; i + 1 < argc; i += 2) args[argv[i]] = argv[i + 1];
  if (argc % 2 == 0 || (!args.contains("--seed") && !args.contains("--seeds"))) return Usage();
  std::vector<Scenario> scenarios = FaultMatrix();
  if (args.contains("--scenario")) {
    const auto one = ParseScenario(args["--scenario"]);
    if (!one) {
      fmt::print(stderr, "{}\n", one.error().ToString());
      return 2;
    }
    scenarios = {*one};
  }
  const bool trace = args.contains("--seed");
  const std::uint64_t first =
      std::strtoull((trace ? args["--seed"] : args["--first"]).c_str(), nullptr, 10);
  const std::uint64_t count = trace ? 1 : std::strtoull(args["--seeds"].c_str(), nullptr, 10);
  int failed = 0;
  for (const Scenario& scenario : scenarios) {
    double longest = 0;
    int bad = 0;
    for (std::uint64_t seed = first; seed < first + count; ++seed) {
      const Outcome outcome = RunScenario(scenario, {.seed = seed, .trace = trace, .planted = {}});
      for (const std::string& line : outcome.trace) fmt::print("{}\n", line);
      longest = std::max(longest, outcome.longest_wait - 3 * outcome.fault_free);
      if (!outcome.failures.empty()) {
        ++bad;
        fmt::print("FAILED seed {} scenario {}: {}\n", seed, scenario.Name(),
                   outcome.failures.front());
      }
      if (trace) {
        fmt::print(
            "{} rounds in {:.1f} s, {} events; samples used {}, returned {}; fault-free round "
            "{:.2f} s\n",
            outcome.rounds, outcome.virtual_seconds, outcome.events, outcome.used, outcome.returned,
            outcome.fault_free);
      }
    }
    fmt::print("{:28} {} seeds, {} failed; longest wait {:+.1f} s over three fault-free rounds\n",
               scenario.Name(), count, bad, longest);
    std::fflush(stdout);
    failed += bad;
  }
  return failed == 0 ? 0 : 1;
}
