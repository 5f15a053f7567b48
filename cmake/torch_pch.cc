// The precompiled header of the torch targets needs one source file to belong to; it is this empty
// one.
