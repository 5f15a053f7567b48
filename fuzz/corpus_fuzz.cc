// A user's text: plain or jsonl, with any bytes. It is read whole or refused by line and reason, a
// data set that is built of it opens again, and what is reported of it is text. The first byte: bit
// 0 jsonl, bit 1 skip bad lines, bit 2 the tokenizer, bit 3 packed by gzip,
// bit 4 of tokens; then the file.
#include "data/corpus.h"

#include <span>
#include <vector>

#include "base/json.h"
#include "base/utf8.h"
#include "data/dataset.h"
#include "fuzz/fuzz.h"
#include "fuzz/harness/temp_folder.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  static const fuzz::TempFolder folder, built;
  fuzz::Input in(data, size);
  const std::size_t how = in.Byte();
  folder.Clear();
  const std::string name = std::string(how & 1U ? "a.jsonl" : "a.txt") + (how & 8U ? ".gz" : "");
  folder.Put(name, in.Rest());
  data::DataConfig config;
  config.paths = {folder.Path(name)};
  config.skip_bad = (how & 2U) != 0;
  config.tokenizer = how & 4U ? "bytes" : "chars";
  config.chat = "chatml";
  if ((how & 16U) != 0) config.format = "nanogpt";
  config.val_fraction = 0.1;
  const auto looked = data::CheckData(config, 8);
  if (!looked.ok()) {
    fuzz::ExpectGoodError(looked.error());
  } else {
    fuzz::Expect(FindInvalidUtf8(looked.value().ToText()) == std::string::npos,
                 "a report is valid text");
    fuzz::Expect(json::Parse(looked.value().ToJson()).ok(), "a report is JSON");
  }
  built.Clear();
  const auto report = data::BuildDataset(config, built.path());
  if (!report.ok()) {
    fuzz::ExpectGoodError(report.error());
    return 0;
  }
  const auto dataset = data::OpenDataset(built.path());
  fuzz::Expect(dataset.ok(), "what was built opens", dataset.ok() ? "" : dataset.error().message);
  fuzz::Expect(dataset.value().train.size() == report.value().train_tokens &&
                   dataset.value().val.size() == report.value().val_tokens,
               "every token is there");
  fuzz::Accept();
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  const std::string_view text = "Emma Woodhouse, handsome, clever, and rich \xe2\x80\x94 seemed.\n";
  const std::string_view lines =
      "{\"text\": \"one\"}\n{\"text\": \"two \\u00e9\", \"id\": 2}\n\n{\"text\": 3}\n";
  seeds.Add("text", Script().Byte(0).Raw(AsBytes(text)));
  seeds.Add("text-bytes", Script().Byte(4).Raw(AsBytes(text)));
  seeds.Add("lines", Script().Byte(3).Raw(AsBytes(lines)));
  const std::vector<std::uint8_t> gzip{
      0x1f, 0x8b, 0x8,  0x0,  0x0,  0x0,  0x0,  0x0,  0x0,  0x3,  0xf3, 0x2c, 0x51, 0xc8, 0x2c,
      0x56, 0x48, 0x54, 0x28, 0x29, 0x2a, 0x2d, 0xc9, 0x50, 0x28, 0xcd, 0xcb, 0x2c, 0x4b, 0x2d,
      0x2a, 0x4e, 0xcc, 0xc9, 0xa9, 0x54, 0x48, 0x4c, 0xce, 0xce, 0xcb, 0x2f, 0xcf, 0x49, 0x4d,
      0x49, 0x4f, 0x4d, 0xe1, 0x2,  0x0,  0x3b, 0xb8, 0xdc, 0xb6, 0x27, 0x0,  0x0,  0x0};
  seeds.Add("text-gzip", Script().Byte(12).Raw(std::as_bytes(std::span(gzip))));
  const std::string_view talk =
      R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hey"}]})";
  seeds.Add("messages", Script().Byte(5).Raw(AsBytes(talk)));
  seeds.Add("tokens", Script().Byte(20).Raw(AsBytes(std::string_view("a\0b\0", 4))));
  seeds.AddRefused("bad-line", Script().Byte(1).Raw(AsBytes(lines)).bytes());
}
