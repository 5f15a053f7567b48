// The certificate that a stranger presents in the TLS handshake.
#include "crypto/certificate.h"

#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  (void)loom::crypto::CertificateKey(loom::fuzz::View(data, size));
  return 0;
}
