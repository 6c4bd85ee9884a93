// Texts typed into fields of contexts, which are suggested there until the browser's tab is closed.

const TYPED = 'celeris-context';
const TYPED_MAX = 8;

/** The texts of each field, latest first; empty without storage, for example in private windows. */
function kept() {
  try {
    const texts = JSON.parse(sessionStorage.getItem(TYPED) ?? '{}');
    return typeof texts === 'object' && texts !== null ? texts : {};
  } catch {
    return {};
  }
}

const keyOf = (stream, field) => JSON.stringify([stream, field]);

/** What was typed into a field of a stream, latest first. */
export function typedBefore(stream, field) {
  const texts = kept()[keyOf(stream, field)];
  return Array.isArray(texts) ? texts.filter((text) => typeof text === 'string') : [];
}

export function rememberTyped(stream, field, text) {
  const others = typedBefore(stream, field).filter((other) => other !== text);
  const texts = { ...kept(), [keyOf(stream, field)]: [text, ...others].slice(0, TYPED_MAX) };
  try {
    sessionStorage.setItem(TYPED, JSON.stringify(texts));
  } catch {
    // Suggestions are optional.
  }
}
