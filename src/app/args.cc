// CLI11 behind Args, and the way from argv to a verb's exit code.
#include "app/args.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>

#include "app/print.h"
#include "base/json.h"
#include "base/nearest.h"
#include "train/spec_keys.h"

namespace loom::app {

inline constexpr int kUsageError = 2;
inline constexpr const char* kVersion = "loom 0.1.0";

struct Args::State {
  CLI::App app;
};

namespace {

/// Hides the value of options like CLI11's own "TEXT" behind the name that we give.
template <class T>
CLI::Option* Add(CLI::App& app, const std::string& name, const std::string& value_name, T& out,
                 const std::string& help, bool show_default) {
  CLI::Option* option = app.add_option(name, out, help)->option_text(value_name);
  if (show_default && help.find("default:") == std::string::npos)
    option->description(fmt::format("{} (default {})", help, out));
  return option;
}

/// CLI11 2.1 reads "-1" into an unsigned variable as 2^64-1, and so all that is larger.
CLI::Validator WholeNumber() {
  return CLI::Validator(
      [](std::string& text) {
        std::uint64_t value = 0;
        const char* end = text.data() + text.size();
        const auto [stop, error] = std::from_chars(text.data(), end, value);
        if (error == std::errc::result_out_of_range) {
          return fmt::format("'{}' is larger than {}", text.substr(0, 40), UINT64_MAX);
        }
        return error == std::errc{} && stop == end
                   ? std::string()
                   : fmt::format("'{}' is no whole number >= 0", text.substr(0, 40));
      },
      "");
}

/// A next step for an error that came without one.
std::string NextStep(std::string_view verb, Code code) {
  switch (code) {
    case Code::kNotFound:
      return "check the spelling, and the folder that you are in";
    case Code::kIo:
      return "check that the path exists and that you may read and write there: ls -ld PATH";
    case Code::kDiskFull:
      return "make room there (df -h shows how much), then do the same again";
    case Code::kUnreachable:
    case Code::kTimeout:
      return "try again; loom status and loom doctor say more";
    case Code::kRefused:
      return "ask an owner of the run";
    case Code::kCorrupt:
      return "bring back a copy; of a peer's folder, loom join INVITE into an empty one";
    case Code::kInternal:
      return "this is a defect of loom: please report it with the command line";
    default:
      return fmt::format("loom {} --help shows what it takes", verb);
  }
}

void PrintError(std::string_view verb, Error error, bool json) {
  if (error.hint.empty()) error.hint = NextStep(verb, error.code);
  Print(stderr, "loom {}: {}\n  hint: {}\n", verb, error.message, error.hint);
  if (!json) return;
  const json::Object inner{{"code", json::Value(CodeName(error.code))},
                           {"message", json::Value(error.message)},
                           {"hint", json::Value(error.hint)}};
  Print(stdout, "{}\n", json::Dump(json::Object{{"error", json::Value(inner)}}));
}

void PrintOverview(const std::vector<Verb>& verbs) {
  Print(stdout, "{}: many machines train one language model together\n\nloom VERB [OPTIONS]\n\n",
        kVersion);
  for (const Verb& verb : verbs) Print(stdout, "  {:<16} {}\n", verb.name, verb.summary);
  Print(stdout,
        "\nloom VERB --help explains one of them, with an example. loom --version says which one "
        "this is.\n"
        "First steps: loom demo --help\n");
}

/// The verb whose words start the command line, and how many they are; null when there is none.
const Verb* FindVerb(const std::vector<Verb>& verbs, const std::vector<std::string>& words,
                     std::size_t* used) {
  for (const Verb& verb : verbs) {
    const std::size_t count =
        1 + static_cast<std::size_t>(std::count(verb.name.begin(), verb.name.end(), ' '));
    if (words.size() < count) continue;
    std::string joined = words[0];
    for (std::size_t i = 1; i < count; ++i) joined += " " + words[i];
    if (joined == verb.name) {
      *used = count;
      return &verb;
    }
  }
  return nullptr;
}

/// "loom data", "loom tokenizer --help": the verbs that begin so. Returns the exit code, nothing
/// when there are none.
std::optional<int> FirstWordOnly(const std::vector<Verb>& verbs,
                                 const std::vector<std::string>& words) {
  std::string list;
  for (const Verb& verb : verbs) {
    if (verb.name.starts_with(words[0] + " "))
      list += fmt::format("  loom {:<16} {}\n", verb.name, verb.summary);
  }
  if (list.empty()) return std::nullopt;
  const bool help = words.size() > 1 && (words[1] == "--help" || words[1] == "-h");
  if (help) {
    Print(stdout, "Verbs that begin with {}:\n\n{}", words[0], list);
    return 0;
  }
  if (words.size() > 1 && !words[1].starts_with('-')) return std::nullopt;
  Print(stderr, "loom: '{}' is half a verb\n  hint: one of\n{}", words[0], list);
  return kUsageError;
}

int UnknownVerb(const std::vector<Verb>& verbs, const std::string& word) {
  std::vector<std::string_view> names;
  names.reserve(verbs.size());
  for (const Verb& verb : verbs) names.push_back(verb.name);
  std::string_view nearest = Nearest(word, names);
  for (const Verb& verb : verbs) {
    if (verb.name.starts_with(word + " ")) nearest = verb.name;
  }
  Print(stderr, "loom: '{}' is no verb\n  hint: {}\n", word.substr(0, 40),
        nearest.empty() ? "loom --help lists them" : fmt::format("did you mean loom {}?", nearest));
  return kUsageError;
}

}  // namespace

void Args::Positional(const std::string& name, std::string& out, const std::string& help,
                      Need need) {
  state_.app.add_option(name, out, help)->option_text(" ")->required(need == Need::kRequired);
}
void Args::Positional(const std::string& name, std::vector<std::string>& out,
                      const std::string& help, Need need) {
  state_.app.add_option(name, out, help)->option_text("...")->required(need == Need::kRequired);
}
void Args::Option(const std::string& name, const std::string& value_name, std::string& out,
                  const std::string& help, Need need) {
  Add(state_.app, name, value_name, out, help, !out.empty())->required(need == Need::kRequired);
}
void Args::Option(const std::string& name, const std::string& value_name,
                  std::vector<std::string>& out, const std::string& help, Need need) {
  state_.app.add_option(name, out, help)
      ->option_text(value_name)
      ->required(need == Need::kRequired);
}
void Args::Option(const std::string& name, const std::string& value_name, std::uint64_t& out,
                  const std::string& help) {
  Add(state_.app, name, value_name, out, help, true)->check(WholeNumber());
}
void Args::Option(const std::string& name, const std::string& value_name,
                  std::optional<std::uint64_t>& out, const std::string& help) {
  state_.app
      .add_option_function<std::uint64_t>(
          name, [&out](std::uint64_t value) { out = value; }, help)
      ->option_text(value_name)
      ->check(WholeNumber());
}
void Args::Size(const std::string& name, std::uint64_t& out, const std::string& help) {
  state_.app
      .add_option_function<std::string>(
          name,
          [&out](const std::string& text) {
            const auto size = train::ParseSize(text);
            if (!size) throw CLI::ValidationError(size.error().message);
            out = *size;
          },
          help)
      ->option_text("BYTES");
}
void Args::Option(const std::string& name, const std::string& value_name, double& out,
                  const std::string& help) {
  Add(state_.app, name, value_name, out, help, true);
}
void Args::Flag(const std::string& name, bool& out, const std::string& help) {
  state_.app.add_flag(name, out, help);
}

std::string_view ProgramVersion() { return kVersion; }

Status CheckRange(std::string_view option, std::uint64_t value, std::uint64_t low,
                  std::uint64_t high) {
  if (value >= low && value <= high) return {};
  return MakeError(Code::kInvalid,
                   fmt::format("{} {} is outside of {} .. {}", option, value, low, high));
}

int ExitCode(Code code) {
  switch (code) {
    case Code::kInvalid:
      return 3;
    case Code::kNotFound:
      return 4;
    case Code::kCorrupt:
      return 5;
    case Code::kIo:
      return 6;
    case Code::kDiskFull:
      return 7;
    case Code::kUnreachable:
      return 8;
    case Code::kTimeout:
      return 9;
    case Code::kRefused:
      return 10;
    case Code::kConflict:
      return 11;
    case Code::kLimit:
      return 12;
    case Code::kInternal:
      return 70;
  }
  return 70;
}

int RunCommandLine(const std::vector<Verb>& verbs, int argc, const char* const* argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (words.empty() || words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    PrintOverview(verbs);
    return 0;
  }
  if (words[0] == "--version") {
    Print(stdout, "{}\n", kVersion);
    return 0;
  }
  std::size_t used = 0;
  const Verb* verb = FindVerb(verbs, words, &used);
  if (verb == nullptr) {
    const auto half = FirstWordOnly(verbs, words);
    return half ? *half : UnknownVerb(verbs, words[0]);
  }

  Args::State state;
  state.app.description(verb->summary);
  state.app.name("loom " + verb->name);
  state.app.footer("Example: " + verb->example);
  Args args(state);
  verb->declare(args);
  const bool json = std::find(words.begin(), words.end(), "--json") != words.end();
  std::vector<std::string> rest(words.begin() + static_cast<std::ptrdiff_t>(used), words.end());
  std::reverse(rest.begin(), rest.end());  // CLI11 takes them from the back
  try {
    state.app.parse(rest);
  } catch (const CLI::CallForHelp&) {
    Print(stdout, "{}", state.app.help());
    return 0;
  } catch (const CLI::ParseError& error) {
    PrintError(verb->name,
               MakeError(Code::kInvalid, error.what(), fmt::format("loom {} --help", verb->name)),
               json);
    return kUsageError;
  }
  const Status status = verb->run();
  if (status) return 0;
  PrintError(verb->name, status.error(), json);
  return ExitCode(status.error().code);
}

}  // namespace loom::app
