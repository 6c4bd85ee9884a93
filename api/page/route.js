// The address: `?model=…&user=…#try` or `#operate`. The views are links, so the back button returns to the other.

import { byId } from './dom.js';

const TITLES = { try: 'Try it', operate: 'Operate' };

/** The view of the address; the first one where it names none. */
export const view = () => (location.hash.slice(1) in TITLES ? location.hash.slice(1) : 'try');

/** The model and user that the address asks for, or null. */
export function asked() {
  const wanted = new URLSearchParams(location.search);
  return { model: wanted.get('model'), user: wanted.get('user') };
}

/** A link to a view of this page. */
export const linkTo = (to, { model, user }) => `?${new URLSearchParams({ model, user })}#${to}`;

/** Puts model and user into the address, without an entry in the history. */
export function remember({ model, user }) {
  history.replaceState(null, '', linkTo(view(), { model, user }));
}

/** Shows the view of the address, and calls `changed(view)` whenever it becomes another. */
export function follow(changed) {
  const show = () => {
    const now = view();
    for (const name of Object.keys(TITLES)) {
      byId(`view-${name}`).hidden = name !== now;
      const tab = byId(`tab-${name}`);
      if (name === now) tab.setAttribute('aria-current', 'page');
      else tab.removeAttribute('aria-current');
    }
    document.body.dataset.view = now;
    document.title = `${TITLES[now]} · Celeris`;
    byId('skip').href = `#view-${now}`;
  };
  addEventListener('hashchange', () => {
    const before = document.body.dataset.view;
    show();
    if (view() === before) return;
    scrollTo(0, 0);
    changed(view());
  });
  // The fragment names the view, so the skip link moves the focus without changing it.
  byId('skip').addEventListener('click', (event) => {
    event.preventDefault();
    byId(`view-${view()}`).focus();
  });
  show();
}
