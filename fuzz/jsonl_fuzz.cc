// A line of a jsonl corpus of each shape: what is accepted is text that spans cover, with something
// to learn from, that a tokenizer takes and gives back. The first byte: the chat template (3:
// none), bit 2 a loss on all; then the line.
#include "base/utf8.h"
#include "data/jsonl_line.h"
#include "data/tokenizer.h"
#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  fuzz::Input in(data, size);
  const std::size_t how = in.Byte();
  data::LineRules rules;
  if (how % 4 < 3) rules.chat = static_cast<data::ChatTemplate>(how % 4);
  rules.loss_on_all = (how & 4U) != 0;
  data::Fault fault{};
  const auto line = data::ParseJsonlLine(AsText(in.Rest()), rules, fault);
  if (!line.ok()) {
    fuzz::ExpectGoodError(line.error());
    return 0;
  }
  const data::MarkedText& marked = line.value().marked;
  fuzz::Expect(!marked.text.empty(), "an accepted line has text");
  fuzz::Expect(FindInvalidUtf8(marked.text) == std::string::npos, "text is valid UTF-8");
  std::size_t at = 0;
  bool learns = false;
  for (const data::Span& span : marked.spans) {
    fuzz::Expect(span.size > 0, "no span is empty");
    fuzz::Expect(span.loss || !rules.loss_on_all, "a loss on all is one on all");
    learns = learns || span.loss;
    at += span.size;
  }
  fuzz::Expect(at == marked.text.size() && learns, "spans cover the text, and some have a loss");
  const std::string_view texts[] = {marked.text};
  const auto chars = data::Tokenizer::TrainChars(texts);
  fuzz::Expect(chars.ok(), "valid text has a vocabulary");
  const auto ids = chars.value()->Encode(marked.text);
  fuzz::Expect(ids.ok() && chars.value()->Decode(ids.value()) == marked.text, "chars round trip");
  fuzz::Accept();
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  const auto add = [&](std::string name, std::size_t how, std::string_view line) {
    seeds.Add(std::move(name), Script().Byte(how).Raw(AsBytes(line)));
  };
  add("text", 3,
      R"({"id": 7, "text": "It is a truth universally acknowledged \u2014 \ud83d\ude00"})");
  add("completion", 3, R"({"prompt": "Emma Woodhouse, ", "completion": "handsome"})");
  const std::string_view talk =
      R"({"messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": " Hi "},
          {"role": "assistant", "content": "Good day."}]})";
  add("chatml", 0, talk);
  add("llama3", 1, talk);
  add("smollm-all", 6, talk);
  seeds.AddRefused("no-text", Script().Byte(3).Raw(AsBytes(R"({"id": 7})")).bytes());
  seeds.AddRefused("no-template", Script().Byte(3).Raw(AsBytes(talk)).bytes());
}
