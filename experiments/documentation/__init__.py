"""The site of docs/: what MkDocs needs beside the pages themselves."""
