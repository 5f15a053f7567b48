// loom doctor: what this machine offers to a peer, check by check, each with the next step.
#include <fmt/core.h>

#include <memory>

#include "app/doctor.h"
#include "app/output.h"
#include "app/verbs.h"
#include "tensor/runtime.h"

namespace loom::app {

std::string_view GradeName(Grade grade) {
  switch (grade) {
    case Grade::kPass:
      return "pass";
    case Grade::kWarn:
      return "warn";
    case Grade::kFail:
      return "fail";
    case Grade::kSkip:
      return "skip";
  }
  return "unknown";
}

namespace {

struct Options {
  std::string dir = ".";
  std::string listen;
  bool json = false;
};

Status Doctor(const Options& options) {
  LOOM_RETURN_IF_ERROR(tensor::ConfigureRuntime({.threads = 1, .deterministic = true}));
  Patient patient{options.dir, options.listen};
  AskPeerForCheckup(patient);
  std::vector<Check> checks = MachineChecks(patient);
  for (Check& check : NetworkChecks(patient)) checks.push_back(std::move(check));
  Output out(options.json);
  json::Array rows;
  std::string failed;
  for (const Check& check : checks) {
    Finding finding = check.look();
    if (finding.grade == Grade::kFail)
      failed += (failed.empty() ? "" : ", ") + std::string(check.name);
    if (!options.json) {
      out.Say("{:<4}  {:<10}  {}", GradeName(finding.grade), check.name, Printable(finding.found));
      if (!finding.next.empty()) out.Say("                  next: {}", finding.next);
    }
    json::Object row{{"name", json::Value(check.name)},
                     {"result", json::Value(GradeName(finding.grade))},
                     {"found", json::Value(finding.found)},
                     {"next", json::Value(finding.next)}};
    if (!finding.details.empty())
      row.emplace_back("details", json::Value(std::move(finding.details)));
    rows.emplace_back(std::move(row));
  }
  out.Event({{"ok", json::Value(failed.empty())}, {"checks", json::Value(std::move(rows))}});
  if (failed.empty()) return {};
  return MakeError(Code::kInvalid, "this machine is not ready: " + failed,
                   "the check says what to do next");
}

}  // namespace

Verb DoctorVerb() {
  auto options = std::make_shared<Options>();
  return {.name = "doctor",
          .summary = "Check whether this machine is ready for a peer, and whether others reach it",
          .example = "loom doctor --dir loom-run-1",
          .declare =
              [options](Args& args) {
                args.Option("--dir", "DIR", options->dir,
                            "Where a peer's folder would be, or is: the members that a running "
                            "peer is connected with are asked to dial it back");
                args.Option("--listen", "HOST:PORT", options->listen,
                            "Also check that this address can be listened on");
                args.Flag("--json", options->json, "One object: ok, checks");
              },
          .run = [options] { return Doctor(*options); }};
}

}  // namespace loom::app
