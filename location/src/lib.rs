//! Files in folders and object stores, named by a path or a URL.
