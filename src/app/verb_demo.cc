// loom demo: arguments; the story is told in demo.cc.
#include <memory>

#include "app/demo.h"
#include "app/verbs.h"

namespace loom::app {
Verb DemoVerb() {
  auto options = std::make_shared<DemoOptions>();
  options->corpus = ".cache/austen.txt";  // where ./run demo puts it
  options->out = "loom-demo";
  return {.name = "demo",
          .summary = "Train a small model on a text here and now, and see what it writes",
          .example = "loom demo --corpus book.txt --out demo --json",
          .declare =
              [options](Args& args) {
                args.Option("--corpus", "PATH", options->corpus,
                            "Text to learn from: a txt or jsonl file, or a folder");
                args.Option("--out", "DIR", options->out, "Folder for everything the demo makes");
                args.Option("--rounds", "N", options->rounds,
                            "Rounds to train; 0 = the demo's own number");
                args.Flag("--one-process", options->one_process,
                          "Only the synchronous run in one process, no peers");
                args.Flag("--json", options->json, "NDJSON events on stdout, the story on stderr");
              },
          .run = [options] { return RunDemo(*options); }};
}

}  // namespace loom::app
